"""Creates the Spark session and what it needs: Java, jars, certificates, Python workers, access to object stores."""
