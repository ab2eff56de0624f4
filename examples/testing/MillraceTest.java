import static org.junit.Assert.assertEquals;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** A file server for each test, with JUnit 4. */
public class MillraceTest {
    @Rule public TemporaryFolder folder = new TemporaryFolder();
    private Process server;
    private String url;

    /** Starts Millrace on a free port over an empty folder. */
    @Before
    public void start() throws Exception {
        String program = System.getenv().getOrDefault("MILLRACE", "millrace");
        server = new ProcessBuilder(program, "serve", folder.getRoot().toString(), "--ftp", "off",
                "--http", "127.0.0.1:0", "--ready-json", "--quiet").start();
        String ready = server.inputReader().readLine();
        Matcher http = Pattern.compile("\"url\":\"(http:[^\"]*)\"").matcher(ready);
        http.find();
        url = http.group(1);
    }

    @After
    public void stop() throws Exception {
        server.destroy();
        server.waitFor();
    }

    @Test
    public void aFileIsThereByHttp() throws Exception {
        Files.writeString(Path.of(folder.getRoot().toString(), "report.txt"), "hello");
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + "report.txt")).build();
        assertEquals("hello", HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).body());
    }
}
