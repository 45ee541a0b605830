"""Ways to infill, over the one network and the one loop. One file each."""
