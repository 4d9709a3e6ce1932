CREATE FUNCTION frost(name STRING, celsius DOUBLE) RETURNS TABLE (name STRING, celsius DOUBLE) AS WASM 'weather:frost';

CREATE STREAM iot.frosts WITH (handler = frost) AS SELECT name, celsius FROM STREAM iot.weather;
