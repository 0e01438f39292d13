//! The variants of a url that a request selects, for purges that name a variant by its request
//! fields.

use microcache_policy::VaryNames;

use crate::cache::variant_number;
use crate::message::Request;
use crate::request::engine::Engine;
use crate::request::request_key::key_of;

impl Engine {
    /// The numbers of the variants that a request selects in memory and in the tiers, and of those
    /// that a new response to it would become. Nothing is counted, refreshed or promoted, and the
    /// origin is not asked.
    pub async fn variants_for(&self, request: &Request<'_>) -> Vec<u64> {
        let rules = &self.route(request).rules;
        let own = key_of(request, rules);
        let simplified = self.cache.queries.simplified(&own, self.clock.now());
        let keys = [Some(own), simplified.map(|simplified| simplified.key)];
        let view = request.origin_view(rules);
        let mut numbers = Vec::new();
        for key in keys.iter().flatten() {
            numbers.extend(self.cache.variants_for(key, &view));
            numbers.push(variant_number(key, &VaryNames::default(), &[]));
            let near = self.cache.copy_in_tiers(key, &view).await;
            // The nearest tier may have another variant than the shared ones.
            let shared = self.cache.copy_in_shared_tiers(key, &view).await;
            let behind = [near, shared].into_iter().flatten();
            numbers.extend(behind.map(|found| {
                let one = found.stored();
                variant_number(key, one.vary(), one.selection())
            }));
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}
