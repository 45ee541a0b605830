"""Speed, measured as ratios within one run. `ddot bench coupling|infill|train`."""
