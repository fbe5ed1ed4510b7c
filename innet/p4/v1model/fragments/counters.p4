// What became of the innet packets for this switch. All outcomes are one counter, as a table of Tofino
// cannot have more.

    // By ingress port: those that have no form, or that no entry of `workers` allows.
    @name("refused")
    COUNTER(512, bit<9>, refused);

    // By outcome and job_index, OUTCOME_* * JOBS + job_index. Every packet that is admitted counts in
    // exactly one.
    @name("outcomes")
    COUNTER(16 * JOBS, bit<12>, outcomes);

    apply {
        if (meta.refused == 1) {
            COUNT(refused, standard.ingress_port);
        } else if (meta.outcome != OUTCOME_NONE) {
            COUNT(outcomes, meta.outcome ++ meta.job_index);
        }
    }
