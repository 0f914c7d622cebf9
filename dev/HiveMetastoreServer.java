import java.io.File;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.PartitionExpressionProxy;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf.ConfVars;
import org.apache.hadoop.hive.metastore.events.EventCleanerTask;

/** Hive's own metastore, with a Derby database in memory. Arguments: its port, and a folder for what it writes. */
public class HiveMetastoreServer {
    private static File buckets;

    /** Stands for S3, where the metastore makes the folder of each table and partition, by folders of this machine. */
    public static class LocalS3 extends RawLocalFileSystem {
        private URI uri;

        @Override
        public void initialize(URI uri, Configuration conf) throws IOException {
            super.initialize(URI.create("file:///"), conf);
            this.uri = URI.create(uri.getScheme() + "://" + uri.getAuthority());
        }

        @Override
        public URI getUri() {
            // The constructor of the base class asks for it.
            return uri == null ? super.getUri() : uri;
        }

        @Override
        protected void checkPath(Path path) {}

        @Override
        public File pathToFile(Path path) {
            return new File(buckets, path.toUri().getAuthority() + path.toUri().getPath());
        }
    }

    public static void main(String[] arguments) throws Throwable {
        buckets = new File(arguments[1], "buckets");
        buckets.mkdirs();
        Configuration conf = MetastoreConf.newMetastoreConf();
        for (String scheme : new String[] {"s3", "s3a"}) {
            conf.setClass("fs." + scheme + ".impl", LocalS3.class, FileSystem.class);
        }
        MetastoreConf.setVar(conf, ConfVars.CONNECT_URL_KEY, "jdbc:derby:memory:metastore;create=true");
        MetastoreConf.setVar(conf, ConfVars.WAREHOUSE, new File(arguments[1], "warehouse").toURI().toString());
        MetastoreConf.setBoolVar(conf, ConfVars.AUTO_CREATE_ALL, true);
        MetastoreConf.setBoolVar(conf, ConfVars.SCHEMA_VERIFICATION, false);
        // The defaults are classes of Hive itself, which the metastore alone does not have.
        MetastoreConf.setClass(
            conf, ConfVars.EXPRESSION_PROXY_CLASS, DefaultPartitionExpressionProxy.class, PartitionExpressionProxy.class);
        MetastoreConf.setVar(conf, ConfVars.TASK_THREADS_ALWAYS, EventCleanerTask.class.getName());
        HiveMetaStore.startMetaStore(Integer.parseInt(arguments[0]), null, conf);
    }
}
