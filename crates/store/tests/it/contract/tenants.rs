//! Tenants, their API keys and their credentials.

use ash_core::id::TenantId;
use ash_store::{ApiKey, Credential, KeyHash, Receipt, Store, Tenant};

use crate::support::{add_them, at, credential_id, key_id, receipt, refusal, them, us};

fn key(number: i64, tenant: TenantId) -> ApiKey {
    ApiKey {
        id: key_id(number),
        tenant,
        hash: KeyHash([u8::try_from(number).unwrap(); 32]),
        prefix: "ash_1234".to_owned(),
        label: format!("key {number}"),
        created_at: at(number),
    }
}

fn credential(number: i64, tenant: TenantId) -> Credential {
    Credential {
        id: credential_id(number),
        tenant,
        kind: "anthropic".to_owned(),
        label: format!("credential {number}"),
        sealed: vec![0, 255, 1, 2],
        created_at: at(number),
        last_used_at: None,
    }
}

pub(super) async fn the_default_tenant_exists_from_the_start(store: &dyn Store) {
    let tenant = Tenant { id: us(), created_at: at(0) };
    assert_eq!(store.tenant(&us()).await.unwrap(), tenant);
    assert_eq!(store.tenants().await.unwrap(), [tenant]);
}

pub(super) async fn tenants_are_listed_by_id(store: &dyn Store) {
    for id in ["zoo", "apes"] {
        let tenant = Tenant { id: id.parse().unwrap(), created_at: at(5) };
        store.create_tenant(&tenant).await.unwrap();
    }
    let ids: Vec<_> = store.tenants().await.unwrap().into_iter().map(|tenant| tenant.id).collect();
    assert_eq!(ids.iter().map(TenantId::as_str).collect::<Vec<_>>(), ["apes", "default", "zoo"]);
    assert_eq!(store.tenant(&ids[2]).await.unwrap().created_at, at(5));
}

pub(super) async fn a_tenant_is_added_once(store: &dyn Store) {
    assert_eq!(refusal(store.tenant(&them()).await), r#"NotFound("tenant")"#);
    add_them(store).await;
    let again = Tenant { id: them(), created_at: at(99) };
    assert_eq!(refusal(store.create_tenant(&again).await), r#"Exists("tenant")"#);
    assert_eq!(store.tenant(&them()).await.unwrap().created_at, at(1));
}

pub(super) async fn an_api_key_is_found_by_its_hash(store: &dyn Store) {
    store.create_api_key(&key(2, us()), None).await.unwrap();
    store.create_api_key(&key(1, us()), None).await.unwrap();
    assert_eq!(store.api_key_by_hash(&KeyHash([2; 32])).await.unwrap(), key(2, us()));
    let unknown = store.api_key_by_hash(&KeyHash([9; 32])).await;
    assert_eq!(refusal(unknown), r#"NotFound("API key")"#);
    assert_eq!(store.api_keys(&us()).await.unwrap(), [key(1, us()), key(2, us())]);
}

pub(super) async fn an_api_key_needs_its_tenant(store: &dyn Store) {
    let orphan = store.create_api_key(&key(1, them()), None).await;
    assert_eq!(refusal(orphan), r#"NotFound("tenant")"#);
}

pub(super) async fn no_two_api_keys_share_an_id_or_a_hash(store: &dyn Store) {
    store.create_api_key(&key(1, us()), None).await.unwrap();
    let same_hash = ApiKey { id: key_id(2), ..key(1, us()) };
    let same_id = ApiKey { hash: KeyHash([2; 32]), ..key(1, us()) };
    for twin in [same_hash, same_id] {
        assert_eq!(refusal(store.create_api_key(&twin, None).await), r#"Exists("API key")"#);
    }
    assert_eq!(store.api_keys(&us()).await.unwrap(), [key(1, us())]);
}

pub(super) async fn a_revoked_api_key_is_gone(store: &dyn Store) {
    store.create_api_key(&key(1, us()), None).await.unwrap();
    store.revoke_api_key(&us(), key_id(1)).await.unwrap();
    let gone = store.api_key_by_hash(&KeyHash([1; 32])).await;
    assert_eq!(refusal(gone), r#"NotFound("API key")"#);
    let twice = store.revoke_api_key(&us(), key_id(1)).await;
    assert_eq!(refusal(twice), r#"NotFound("API key")"#);
    store.create_api_key(&key(1, us()), None).await.unwrap();
}

pub(super) async fn another_tenants_api_key_does_not_exist(store: &dyn Store) {
    add_them(store).await;
    store.create_api_key(&key(1, them()), None).await.unwrap();
    assert_eq!(store.api_keys(&us()).await.unwrap(), []);
    let revoked = store.revoke_api_key(&us(), key_id(1)).await;
    assert_eq!(refusal(revoked), r#"NotFound("API key")"#);
    assert_eq!(store.api_keys(&them()).await.unwrap(), [key(1, them())]);
}

pub(super) async fn a_credential_comes_back_as_it_was_sealed(store: &dyn Store) {
    store.create_credential(&credential(2, us()), None).await.unwrap();
    store.create_credential(&credential(1, us()), None).await.unwrap();
    assert_eq!(store.credential(&us(), credential_id(2)).await.unwrap(), credential(2, us()));
    let all = store.credentials(&us()).await.unwrap();
    assert_eq!(all, [credential(1, us()), credential(2, us())]);
}

pub(super) async fn a_credential_is_added_once_and_needs_its_tenant(store: &dyn Store) {
    let orphan = store.create_credential(&credential(1, them()), None).await;
    assert_eq!(refusal(orphan), r#"NotFound("tenant")"#);
    store.create_credential(&credential(1, us()), None).await.unwrap();
    let twice = store.create_credential(&credential(1, us()), None).await;
    assert_eq!(refusal(twice), r#"Exists("credential")"#);
}

pub(super) async fn another_tenants_credential_does_not_exist(store: &dyn Store) {
    add_them(store).await;
    store.create_credential(&credential(1, them()), None).await.unwrap();
    let seen = store.credential(&us(), credential_id(1)).await;
    assert_eq!(refusal(seen), r#"NotFound("credential")"#);
    let deleted = store.delete_credential(&us(), credential_id(1)).await;
    assert_eq!(refusal(deleted), r#"NotFound("credential")"#);
    assert_eq!(store.credentials(&us()).await.unwrap(), []);
    assert_eq!(store.credentials(&them()).await.unwrap(), [credential(1, them())]);
}

pub(super) async fn a_deleted_credential_is_gone(store: &dyn Store) {
    store.create_credential(&credential(1, us()), None).await.unwrap();
    store.delete_credential(&us(), credential_id(1)).await.unwrap();
    let gone = store.credential(&us(), credential_id(1)).await;
    assert_eq!(refusal(gone), r#"NotFound("credential")"#);
    let twice = store.delete_credential(&us(), credential_id(1)).await;
    assert_eq!(refusal(twice), r#"NotFound("credential")"#);
}

pub(super) async fn a_used_credential_says_when(store: &dyn Store) {
    add_them(store).await;
    let id = credential_id(1);
    store.create_credential(&credential(1, us()), None).await.unwrap();
    store.create_credential(&credential(2, us()), None).await.unwrap();
    // What comes late does not turn the clock back.
    for (moment, latest) in [(50, 50), (70, 70), (60, 70)] {
        store.touch_credential(&us(), id, at(moment)).await.unwrap();
        let used = Credential { last_used_at: Some(at(latest)), ..credential(1, us()) };
        assert_eq!(store.credential(&us(), id).await.unwrap(), used);
        assert_eq!(store.credentials(&us()).await.unwrap(), [used, credential(2, us())]);
    }
    let missing = r#"NotFound("credential")"#;
    assert_eq!(refusal(store.touch_credential(&them(), id, at(80)).await), missing);
    assert_eq!(refusal(store.touch_credential(&us(), credential_id(3), at(80)).await), missing);
    assert_eq!(store.credential(&us(), id).await.unwrap().last_used_at, Some(at(70)));
}

pub(super) async fn a_key_and_a_credential_can_leave_a_receipt(store: &dyn Store) {
    let (made, added) = (receipt("made", 5), receipt("added", 6));
    store.create_api_key(&key(1, us()), Some(&made)).await.unwrap();
    store.create_credential(&credential(1, us()), Some(&added)).await.unwrap();
    assert_eq!(store.receipt(&made.key).await.unwrap(), Some(made));
    assert_eq!(store.receipt(&added.key).await.unwrap(), Some(added));
}

pub(super) async fn a_key_or_a_credential_whose_receipt_exists_is_not_added(store: &dyn Store) {
    let made = receipt("made", 5);
    store.create_api_key(&key(1, us()), Some(&made)).await.unwrap();
    let again = Receipt { at: at(9), ..made.clone() };
    let second_key = store.create_api_key(&key(2, us()), Some(&again)).await;
    assert_eq!(refusal(second_key), r#"Exists("receipt")"#);
    let first_credential = store.create_credential(&credential(1, us()), Some(&again)).await;
    assert_eq!(refusal(first_credential), r#"Exists("receipt")"#);
    assert_eq!(store.api_keys(&us()).await.unwrap(), [key(1, us())]);
    assert_eq!(store.credentials(&us()).await.unwrap(), []);
    assert_eq!(store.receipt(&made.key).await.unwrap(), Some(made));
}

pub(super) async fn what_is_refused_leaves_no_receipt(store: &dyn Store) {
    let wanted = receipt("wanted", 5);
    store.create_api_key(&key(1, us()), None).await.unwrap();
    store.create_credential(&credential(1, us()), None).await.unwrap();
    let twin = store.create_api_key(&key(1, us()), Some(&wanted)).await;
    assert_eq!(refusal(twin), r#"Exists("API key")"#);
    let orphan = store.create_api_key(&key(2, them()), Some(&wanted)).await;
    assert_eq!(refusal(orphan), r#"NotFound("tenant")"#);
    let twin = store.create_credential(&credential(1, us()), Some(&wanted)).await;
    assert_eq!(refusal(twin), r#"Exists("credential")"#);
    assert_eq!(store.receipt(&wanted.key).await.unwrap(), None);
}
