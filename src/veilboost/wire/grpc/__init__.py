"""Links over gRPC with mutual TLS: the only place of the library that opens sockets."""

import os

# gRPC writes of every failed handshake and port to stderr; what a person needs of it is in our own errors.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
