"""An estimate of jobs before their calls: tokens, cost and time."""
