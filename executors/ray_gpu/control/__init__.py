"""The parts of the controller, one subject each: `controller` is all of them."""
