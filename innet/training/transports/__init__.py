"""Networks under the training algorithms, and the rings and trees over them."""
