//! What is added to a tenant: keys and credentials.

use ash_core::id::{CredentialId, TenantId};

use super::Tables;
use crate::model::{ApiKey, Credential, Receipt, Tenant};
use crate::{Result, StoreError};

impl Tables {
    pub(super) fn create_tenant(&mut self, tenant: &Tenant) -> Result<()> {
        if self.tenants.contains_key(&tenant.id) {
            return Err(StoreError::Exists("tenant"));
        }
        self.tenants.insert(tenant.id.clone(), tenant.clone());
        Ok(())
    }

    pub(super) fn delete_credential(&mut self, tenant: &TenantId, id: CredentialId) -> Result<()> {
        let found = self.credentials.get(&id).filter(|found| found.tenant == *tenant);
        found.ok_or(StoreError::NotFound("credential"))?;
        self.credentials.remove(&id);
        Ok(())
    }

    pub(super) fn create_api_key(&mut self, key: &ApiKey, receipt: Option<&Receipt>) -> Result<()> {
        if !self.tenants.contains_key(&key.tenant) {
            return Err(StoreError::NotFound("tenant"));
        }
        if self.keys.values().any(|other| other.id == key.id || other.hash == key.hash) {
            return Err(StoreError::Exists("API key"));
        }
        self.check_receipt(receipt)?;
        self.keep_receipt(receipt);
        self.keys.insert(key.id, key.clone());
        Ok(())
    }

    pub(super) fn create_credential(
        &mut self,
        credential: &Credential,
        receipt: Option<&Receipt>,
    ) -> Result<()> {
        if !self.tenants.contains_key(&credential.tenant) {
            return Err(StoreError::NotFound("tenant"));
        }
        if self.credentials.contains_key(&credential.id) {
            return Err(StoreError::Exists("credential"));
        }
        self.check_receipt(receipt)?;
        self.keep_receipt(receipt);
        self.credentials.insert(credential.id, credential.clone());
        Ok(())
    }
}
