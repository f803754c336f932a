"""horizon: the policy that weighs time against cost, over all jobs at once."""
