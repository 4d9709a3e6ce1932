-- The key of an advisory lock of this catalog: other catalogs of the database, and other programs, have other keys.
create or replace function lock_key(what text) returns bigint language sql stable as $$
    select hashtextextended('anabranch ' || current_schema() || ' ' || what, 0)
$$;
