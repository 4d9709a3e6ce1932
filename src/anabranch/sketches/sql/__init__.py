"""The functions of sketches in SQL, under the names and with the arguments and results that they have in Spark, where Spark
has them. Queries have all of them; pipelines get those that Spark lacks."""
