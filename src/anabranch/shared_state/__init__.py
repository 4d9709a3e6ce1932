"""State that processes share: revisioned streams with conditional appends, and the synchronizer built on them."""
