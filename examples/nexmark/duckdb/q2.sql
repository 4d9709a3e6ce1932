SELECT auction, price, date_time FROM bid WHERE auction % 123 = 0
