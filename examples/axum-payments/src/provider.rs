//! A payment provider, played by a table: it takes a key with every payment, and pays each key
//! once.

use sqlx::{PgPool, Row as _};

/// Asks the provider to move money. Asked again with the same key, it answers as before.
///
/// # Errors
/// Where it can't be reached.
pub async fn pay(pool: &PgPool, key: &str, kind: &str, cents: i64) -> Result<String, sqlx::Error> {
    let text = "INSERT INTO provider_payments (key, kind, cents, asked) VALUES ($1, $2, $3, 1) \
                ON CONFLICT (key) DO UPDATE SET asked = provider_payments.asked + 1 RETURNING id";
    let row = sqlx::query(text)
        .bind(key)
        .bind(kind)
        .bind(cents)
        .fetch_one(pool)
        .await?;
    Ok(format!("{kind}_{}", row.get::<i64, _>(0)))
}
