import java.sql.*;
import java.util.*;

/** Prints what the JDBC driver finds: arguments are the URL, the user, the password and the count of rows to expect. */
public class Jdbc {
    static void show(String title, ResultSet found, String... columns) throws SQLException {
        try (found) {
            List<String> rows = new ArrayList<>();
            while (found.next()) {
                List<String> row = new ArrayList<>();
                for (String column : columns) row.add(String.valueOf(found.getObject(column)));
                rows.add(String.join("|", row));
            }
            System.out.println(title + " " + rows);
        }
    }

    static void refused(String title, Connection connection, String query) {
        try (Statement statement = connection.createStatement()) {
            statement.executeQuery(query).next();
            System.out.println(title + " passed");
        } catch (SQLException exc) {
            System.out.println(title + " refused " + exc.getMessage().replace('\n', ' '));
        }
    }

    public static void main(String[] given) throws Exception {
        Properties options = new Properties();
        options.put("user", given[1]);
        options.put("password", given[2]);
        options.put("useEncryption", "false");
        try (Connection connection = DriverManager.getConnection(given[0], options)) {
            DatabaseMetaData about = connection.getMetaData();
            System.out.println("product " + about.getDatabaseProductName());
            show("catalogs", about.getCatalogs(), "TABLE_CAT");
            show("schemas", about.getSchemas(), "TABLE_SCHEM");
            show("tables", about.getTables(null, null, "%", null), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
            show("columns", about.getColumns(null, "s", "kinds", "%"), "COLUMN_NAME", "TYPE_NAME");
            show("types", about.getTableTypes(), "TABLE_TYPE");
            show("primary", about.getPrimaryKeys(null, "s", "kinds"), "COLUMN_NAME");
            show("imported", about.getImportedKeys(null, "s", "kinds"), "FKCOLUMN_NAME");
            show("exported", about.getExportedKeys(null, "s", "kinds"), "FKCOLUMN_NAME");
            show("cross", about.getCrossReference(null, "s", "kinds", null, "s", "kinds"), "FKCOLUMN_NAME");
            try (Statement statement = connection.createStatement()) {
                show("rows", statement.executeQuery("SELECT * FROM s.kinds ORDER BY n"),
                     "n", "name", "value", "price", "at", "tags");
            }
            try (PreparedStatement prepared = connection.prepareStatement("SELECT name FROM s.kinds WHERE name = ?")) {
                for (String name : new String[] {"a", "none"}) {
                    prepared.setString(1, name);
                    show("prepared", prepared.executeQuery(), "name");
                }
            }
            try (Statement statement = connection.createStatement();
                 ResultSet found = statement.executeQuery("SELECT n FROM s.numbers")) {
                long count = 0, sum = 0;
                for (; found.next(); count++) sum += found.getLong(1);
                System.out.println("large " + count + " " + sum);
            }
            refused("hidden", connection, "SELECT * FROM private.names");
            refused("change", connection, "DELETE FROM s.kinds");
        }
        try (Connection connection = DriverManager.getConnection(given[0] + "?anabranch-dialect=bigquery", options);
             Statement statement = connection.createStatement()) {
            show("dialect", statement.executeQuery("SELECT SAFE_CAST(name AS INT64) AS n FROM s.kinds WHERE n = 1"), "n");
        }
    }
}
