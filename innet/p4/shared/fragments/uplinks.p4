// The links to parents: at which port, from whom, and under which address this switch is known there. All
// switches of a tree serve one address, so this comes before anybody is accused of sending in the
// switch's name.

    action descend() {
        meta.above = 1;
        meta.worker = (bitmap_t) hdr.innet.workers;
    }

    @name("uplinks")
    table uplinks {
        key = {
            standard.ingress_port: exact @name("port");
            meta.sender: exact @name("parent");
            meta.target: exact @name("address");
        }
        actions = { descend; NoAction; }
        const default_action = NoAction;
        size = 16;
    }
