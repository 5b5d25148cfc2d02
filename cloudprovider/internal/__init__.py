"""What the SDK itself is made of. No promise to vendors: it may change in any version."""
