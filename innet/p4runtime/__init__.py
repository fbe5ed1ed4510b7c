"""P4Runtime's messages and gRPC service, as https://p4.org/p4-spec defines them.

The folder ``protos`` has the published .proto files: those of P4Runtime 1.4.1, and ``google.rpc``. `make
proto` compiles them. Each module ``NAME_pb2`` has the messages of ``NAME.proto``.

The packages ``p4runtime`` and ``googleapis-common-protos`` have the same messages, but each of their
releases works with some versions of protobuf only. These modules work with all versions from 3.20 on.
"""
