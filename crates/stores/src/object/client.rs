//! The client library's store for a URL, on our own connections.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use semel_core::StoreResult;

use super::http::Connector;
use super::time::ServerTime;
use super::url::{Cloud, Target, bad};

impl Target {
    /// The client library's store, on our own connections and without its retries. A retry after a
    /// write that was applied would fail its condition because of that very write, and the library
    /// would report another writer.
    pub(super) fn open(&self, time: &Arc<ServerTime>) -> StoreResult<Arc<dyn ObjectStore>> {
        let connector = Connector::new(self.tls()?, Arc::clone(time));
        let connector = connector.map_err(|_| bad("this machine has no list of whom to trust"))?;
        let retry = RetryConfig {
            max_retries: 0,
            retry_timeout: Duration::ZERO,
            backoff: BackoffConfig::default(),
        };
        let is_plain = |endpoint: &String| endpoint.starts_with("http://");
        let plain = self.endpoint.as_ref().is_some_and(is_plain);
        let unusable = |_| bad("the bucket, endpoint or login can't be used");
        let store: Arc<dyn ObjectStore> = match self.cloud {
            Cloud::S3 => {
                let mut builder = AmazonS3Builder::from_env()
                    .with_bucket_name(&self.bucket)
                    .with_virtual_hosted_style_request(self.is_virtual)
                    .with_allow_http(plain)
                    // One by one, so that each deletion can be conditional.
                    .with_disable_bulk_delete(true)
                    .with_retry(retry)
                    .with_http_connector(connector);
                if let Some(endpoint) = &self.endpoint {
                    builder = builder.with_endpoint(endpoint);
                }
                if let Some(region) = &self.region {
                    builder = builder.with_region(region);
                }
                if let Some((key, secret)) = &self.login {
                    builder = builder.with_access_key_id(key);
                    builder = builder.with_secret_access_key(secret);
                }
                Arc::new(builder.build().map_err(unusable)?)
            }
            Cloud::Gcs => {
                let builder = GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(&self.bucket)
                    .with_retry(retry)
                    .with_http_connector(connector);
                Arc::new(builder.build().map_err(unusable)?)
            }
            Cloud::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env()
                    .with_container_name(&self.bucket)
                    .with_allow_http(plain)
                    .with_retry(retry)
                    .with_http_connector(connector);
                if let Some((account, key)) = &self.login {
                    builder = builder.with_account(account).with_access_key(key);
                }
                if let Some(endpoint) = &self.endpoint {
                    builder = builder.with_endpoint(endpoint.clone());
                }
                Arc::new(builder.build().map_err(unusable)?)
            }
        };
        Ok(store)
    }

    /// The trusted certificates, if not the machine's own list.
    fn tls(&self) -> StoreResult<Option<rustls::ClientConfig>> {
        let Some(file) = &self.ca else {
            return Ok(None);
        };
        let unreadable = |_| bad("the file of ca can't be read");
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
            let added = roots.add(certificate.map_err(unreadable)?);
            added.map_err(|_| bad("the file of ca has no usable certificate"))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| bad("TLS can't be set up"))?;
        Ok(Some(
            config.with_root_certificates(roots).with_no_client_auth(),
        ))
    }
}
