"""Events from their making until a controller has them."""
