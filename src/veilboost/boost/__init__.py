"""Trees and nothing else: no parties, no cryptography."""
