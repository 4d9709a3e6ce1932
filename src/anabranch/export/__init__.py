"""What a store tells other systems of itself."""
