// The address under which workers reach this switch, one entry.

    action serve(bit<48> mac) {
        meta.mine = 1;
        meta.my_mac = mac;
    }

    @name("service")
    table service {
        key = { meta.target: exact @name("address"); }
        actions = { serve; NoAction; }
        const default_action = NoAction;
        size = 4;
    }
