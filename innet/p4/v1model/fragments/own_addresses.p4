// The addresses of the table `service`, again: does somebody else send in the switch's name? A worker
// must be able to trust what comes from there.

    @name("spoofed")  // by ingress port
    COUNTER(512, bit<9>, spoofed);

    action expose() {
        COUNT(spoofed, standard.ingress_port);
    }

    @name("own_addresses")
    table own_addresses {
        key = { meta.sender: exact @name("address"); }
        actions = { expose; NoAction; }
        const default_action = NoAction;
        size = 4;
    }
