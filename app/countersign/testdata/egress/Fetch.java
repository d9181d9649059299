import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Prints what is at a URL. A second argument is a certificate to trust in place of the system's. */
public class Fetch {
    public static void main(String[] args) throws Exception {
        HttpClient.Builder client = HttpClient.newBuilder();
        if (args.length > 1) {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            try (FileInputStream in = new FileInputStream(args[1])) {
                store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(store);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            client.sslContext(context);
        }
        HttpResponse<String> response = client.build().send(
            HttpRequest.newBuilder(URI.create(args[0])).build(), HttpResponse.BodyHandlers.ofString());
        System.out.print(response.body());
        if (response.statusCode() != 200) {
            System.err.println("status " + response.statusCode());
            System.exit(1);
        }
    }
}
