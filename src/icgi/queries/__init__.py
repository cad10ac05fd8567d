"""Questions beside marginals, one file each: explanations, draws, sensitivity, scans."""
