// Where known stations are attached.

    action forward(bit<9> port) {
        SEND(port);
    }

    action flood() {
        SEND_COPIES(FLOOD_GROUP);
        MARK_FLOODED;
    }

    @name("bridge")
    table stations {
        key = { hdr.ethernet.destination: exact @name("destination"); }
        actions = { forward; flood; }
        const default_action = flood;
        size = 1024;
    }
