// What the controls tell each other about the packet at hand.

    bit<32> sender;          // who sent it, as it says: an IPv4 source, or the sender of an ARP
    bit<32> target;          // whom it asks for: an IPv4 destination, or the target of an ARP
    bit<1>  mine;            // ... and that is this switch
    bit<48> my_mac;
    bit<1>  above;           // it comes from a parent of this switch, to this switch's address there
    bit<4>  form;            // FORM_*
    bool    corrupted;       // it is not as its sender sent it
    bit<1>  refused;         // an innet packet for this switch that nothing allows

    bit<1>  admitted;        // a contribution of a worker that the table knows
    bitmap_t worker;          // its bits in the bitmaps; of a parent's answer, who is in it
    bit<8>  quorum;          // contributions that complete a chunk
    bit<16> group;           // multicast group of the job's workers
    bit<8>  job_index;       // which of the JOBS counters is the job's

    bit<1>  below;           // the sum of this slot goes up to a parent
    bit<9>  uplink;          // ... out of this port
    bit<9>  astray;          // 0 if this packet has come in there
    bit<48> uplink_mac;      // ... in this name
    bit<32> uplink_address;
    bitmap_t elsewhere;       // bitmap: those who are not below this switch

    bit<4>  age;             // AGE_*
    bitmap_t arrived;         // who had contributed before this packet
    bit<1>  repeated;        // the worker was among them
    bitmap_t wanted;          // who wants the result's lanes, as far as is known with this packet
    bitmap_t members;         // who was in the sum before this packet
    bit<16> flags;           // what their contributions said of themselves
    bit<16> count;           // how many workers are in the sum, with this packet
    bit<1>  carried;         // the cell has lanes, from contributions before this packet
    bit<4>  fold;            // FOLD_*
    bit<4>  outcome;         // OUTCOME_*
