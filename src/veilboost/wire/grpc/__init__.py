"""Links over gRPC with mutual TLS: the only place of the library that opens sockets."""
