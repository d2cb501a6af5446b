"""Order-revealing encryption: ciphertexts whose order one party can tell and whose values it cannot."""
