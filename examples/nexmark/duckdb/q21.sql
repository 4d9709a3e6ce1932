SELECT auction, bidder, price, channel, date_time,
       CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END
FROM bid WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR url LIKE '%&channel_id=%'
