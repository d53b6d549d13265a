"""Lists the published checkpoints and data sets, and downloads them."""
