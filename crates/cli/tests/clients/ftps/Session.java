import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.Socket;
import java.util.Arrays;
import java.util.Locale;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSessionContext;
import javax.net.ssl.SSLSocket;
import org.apache.commons.net.ftp.FTP;
import org.apache.commons.net.ftp.FTPSClient;
import org.apache.commons.net.util.TrustManagerUtils;

/**
 * FTPS with Commons Net: a hundred transfers on one control connection.
 *
 * <p>Java keeps TLS sessions by host and port, and a data connection has another port: "reuse" does what programs
 * do that have to resume, and puts the control connection's session where it will be looked for. Under TLS 1.3 that
 * is the session of the last ticket, which the cache has and the socket has not.
 *
 * <p>Arguments: host, explicit port, implicit port, user, password, fresh|reuse, how many.
 */
public final class Session {
    private static final class Client extends FTPSClient {
        private final boolean reuses;

        Client(boolean implicit, boolean reuses) {
            super("TLS", implicit);
            this.reuses = reuses;
        }

        @Override
        protected void _prepareDataSocket_(Socket socket) throws IOException {
            if (!reuses) {
                return;
            }
            SSLSession session = ((SSLSocket) _socket_).getSession();
            SSLSessionContext context = session.getSessionContext();
            try {
                Field field = context.getClass().getDeclaredField("sessionHostPortCache");
                field.setAccessible(true);
                Object cache = field.get(context);
                Method get = cache.getClass().getDeclaredMethod("get", Object.class);
                get.setAccessible(true);
                Object latest = get.invoke(cache, key(_socket_.getInetAddress().getHostAddress(), _socket_.getPort()));
                Method put = cache.getClass().getDeclaredMethod("put", Object.class, Object.class);
                put.setAccessible(true);
                InetAddress server = socket.getInetAddress();
                for (String name : new String[] {server.getHostName(), server.getHostAddress()}) {
                    put.invoke(cache, key(name, socket.getPort()), latest != null ? latest : session);
                }
            } catch (ReflectiveOperationException error) {
                throw new IOException(error);
            }
        }
    }

    private static String key(String host, int port) {
        return (host + ":" + port).toLowerCase(Locale.ROOT);
    }

    private static void check(boolean good, FTPSClient client) {
        if (!good) {
            throw new AssertionError(client.getReplyString());
        }
    }

    private static void session(String[] arguments, boolean implicit, String version, String level, boolean reuses)
            throws IOException {
        Client client = new Client(implicit, reuses);
        client.setTrustManager(TrustManagerUtils.getAcceptAllTrustManager());
        client.setEnabledProtocols(new String[] {version});
        client.connect(arguments[0], Integer.parseInt(arguments[implicit ? 2 : 1]));
        check(client.login(arguments[3], arguments[4]), client);
        client.enterLocalPassiveMode();
        client.setFileType(FTP.BINARY_FILE_TYPE);
        client.execPBSZ(0);
        client.execPROT(level);
        for (int number = 0; number < Integer.parseInt(arguments[6]) / 2; number++) {
            byte[] contents = new byte[3000];
            Arrays.fill(contents, (byte) number);
            check(client.storeFile("f", new ByteArrayInputStream(contents)), client);
            ByteArrayOutputStream back = new ByteArrayOutputStream();
            check(client.retrieveFile("f", back), client);
            if (!Arrays.equals(back.toByteArray(), contents)) {
                throw new AssertionError("the file came back changed");
            }
        }
        check(client.listNames().length == 1, client);
        check(client.deleteFile("f"), client);
        client.logout();
        client.disconnect();
    }

    public static void main(String[] arguments) throws IOException {
        boolean reuses = arguments[5].equals("reuse");
        for (boolean implicit : new boolean[] {false, true}) {
            session(arguments, implicit, "TLSv1.2", "P", reuses);
            session(arguments, implicit, "TLSv1.2", "C", reuses);
            session(arguments, implicit, "TLSv1.3", "P", reuses);
            session(arguments, implicit, "TLSv1.3", "C", reuses);
        }
        System.out.println("all of it works");
    }
}
