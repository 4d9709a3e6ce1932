"""What a program with PyPI's `influxdb` does. Run with its folder on PYTHONPATH, and the port and a token as arguments."""

from __future__ import annotations

import sys

from influxdb import InfluxDBClient  # type: ignore[import-not-found]

port, token = sys.argv[1:]
client = InfluxDBClient("127.0.0.1", int(port), "me", token, timeout=30, gzip=True)
print(client.ping())
client.create_database("python")
print({"name": "python"} in client.get_list_database())
client.switch_database("python")
points = [
    {
        "measurement": "air",
        "tags": {"room": room},
        "time": f"2026-01-01T00:00:{second:02}Z",
        "fields": {"celsius": 20.0 + second, "open": second % 2 == 0, "note": "a, b"},
    }
    for room in ("kitchen", "hall")
    for second in range(3)
]
print(client.write_points(points, batch_size=4))
print(client.get_list_measurements())
result = client.query("SELECT mean(celsius) FROM air WHERE room = $room GROUP BY room", bind_params={"room": "hall"})
print(next(iter(result.items()))[0], [point["mean"] for point in result.get_points()])
chunks = client.query("SELECT celsius FROM air", chunked=True, chunk_size=2)
print([point["celsius"] for chunk in chunks for point in chunk.get_points()])
select = "SELECT mean(celsius) INTO means FROM air GROUP BY time(1m), room"
client.query(f"CREATE CONTINUOUS QUERY minutes ON python BEGIN {select} END", method="POST")
print([query["name"] for each in client.get_list_continuous_queries() for query in each.get("python", [])])
client.query("DROP CONTINUOUS QUERY minutes ON python", method="POST")
client.query("SELECT mean(celsius) INTO means FROM air GROUP BY room")
print([point["mean"] for point in client.query("SELECT mean FROM means").get_points()])
client.drop_measurement("means")
client.drop_measurement("air")
print(client.get_list_measurements())
client.drop_database("python")
client.close()
