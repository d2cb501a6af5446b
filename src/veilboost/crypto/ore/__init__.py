"""Order-revealing encryption: a party with the comparison key learns the order of values, not the values."""
