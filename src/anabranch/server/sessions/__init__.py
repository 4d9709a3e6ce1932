"""What a broker holds for one client, below the front ends: group readers and transactions."""
