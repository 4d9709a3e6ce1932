SELECT b.auction, b.bidder, b.price, b.date_time, a.item_name, p.name, p.city
FROM bid b JOIN auction a ON b.auction = a.id JOIN person p ON a.seller = p.id
