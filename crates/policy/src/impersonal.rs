//! The cookies that never make a request personal, whatever the configuration.
//!
//! A name is listed only if it belongs to a product for analytics or consent, and if no framework could generate it for
//! a session: Rails uses `_<app>_session`, Phoenix `_<app>_key`, Laravel `<app>_session` or `<app>-session`, and an
//! application may have any name. So there are exact names, and prefixes only where the rest cannot be such a word.
//! Names that identify a user to the application (`ajs_user_id`) or that are short enough to be chosen by a programmer
//! (`_cb`) are not listed: `ignore_cookies` can add them.

use crate::text_table::{Case, TextTable};

/// Exact names, the shortest first.
pub const IMPERSONAL_COOKIES: &[&str] = &[
    "_ga",
    "_fbc",
    "_fbp",
    "_gat",
    "_gid",
    "_ttp",
    "s_cc",
    "s_sq",
    "_clck",
    "_clsk",
    "_hjid",
    "_ym_d",
    "__hssc",
    "__hstc",
    "__utma",
    "__utmb",
    "__utmc",
    "__utmt",
    "__utmv",
    "__utmz",
    "__hssrc",
    "_gcl_ag",
    "_gcl_au",
    "_gcl_aw",
    "_gcl_dc",
    "_gcl_gb",
    "_gcl_gf",
    "_gcl_gs",
    "_gcl_ha",
    "_twclid",
    "_uetsid",
    "_uetvid",
    "_ym_uid",
    "_ym_isad",
    "_cb_svref",
    "_rdt_uuid",
    "euconsent",
    "li_fat_id",
    "usprivacy",
    "_hjTLDTest",
    "_ym_visorc",
    "hubspotutk",
    "_chartbeat2",
    "_pin_unauth",
    "mtm_consent",
    "_hjDonePolls",
    "_hjFirstSeen",
    "didomi_token",
    "euconsent-v2",
    "eupubconsent",
    "CookieConsent",
    "tarteaucitron",
    "OptanonConsent",
    "borlabs-cookie",
    "axeptio_cookies",
    "cmplz_marketing",
    "cmplz_policy_id",
    "eupubconsent-v2",
    "_parsely_visitor",
    "ajs_anonymous_id",
    "cmplz_functional",
    "cmplz_statistics",
    "moove_gdpr_popup",
    "_hjMinimizedPolls",
    "_tt_enable_cookie",
    "cmplz_consenttype",
    "cmplz_preferences",
    "mtm_cookie_consent",
    "axeptio_all_vendors",
    "cmplz_banner-status",
    "mtm_consent_removed",
    "CookieLawInfoConsent",
    "cmplz_consent_status",
    "cookieconsent_status",
    "viewed_cookie_policy",
    "OptanonAlertBoxClosed",
    "_hjClosedSurveyInvites",
    "cookie_notice_accepted",
    "cmplz_consented_services",
    "_hjIncludedInSessionSample",
    "axeptio_authorized_vendors",
    "cmplz_statistics-anonymous",
    "_hjIncludedInPageviewSample",
    "_hjAbsoluteSessionInProgress",
    "cookielawinfo-checkbox-others",
    "cookielawinfo-checkbox-analytics",
    "cookielawinfo-checkbox-necessary",
    "cookielawinfo-checkbox-functional",
    "cookielawinfo-checkbox-performance",
    "cookielawinfo-checkbox-advertisement",
    "cookielawinfo-checkbox-non-necessary",
];

/// Prefixes that no framework generates for a session, since they have capital letters or dots. Any suffix may follow.
pub const IMPERSONAL_BEGINNINGS: &[&str] = &[
    "AMCVS_",
    "AMCV_",
    "_hjIncludedInSessionSample_",
    "_hjSessionUser_",
    "_hjSession_",
    "_hp2_id.",
    "_hp2_props.",
    "_hp2_ses_props.",
    "_pk_cvar.",
    "_pk_hsr.",
    "_pk_id.",
    "_pk_ref.",
    "_pk_ses.",
];

/// Prefixes that an application's name could have too. The suffix must be a number or an account (`_ga_X1Y2Z3`,
/// `_gat_UA-12-3`): without small letters, unlike the `session` of `_ga_session`.
pub const IMPERSONAL_ACCOUNTS: &[&str] = &[
    "_dc_gtm_",
    "_ga_",
    "_gac_",
    "_gac_gb_",
    "_gat_",
    "_gat_gtag_",
    "_ym_visorc_",
];

static TABLE: TextTable<{ IMPERSONAL_COOKIES.len() }> =
    TextTable::new(IMPERSONAL_COOKIES, Case::Exact);

/// Returns true if a cookie is listed.
pub(crate) fn is_impersonal(name: &[u8]) -> bool {
    let begins_so = |beginning: &&str| name.starts_with(beginning.as_bytes());
    is_impersonal_token(name) || IMPERSONAL_BEGINNINGS.iter().any(begins_so)
}

/// Returns true if a cookie is listed, and if its name is certainly a token: all of it is listed, or a number or an account
/// follows.
pub(crate) fn is_impersonal_token(name: &[u8]) -> bool {
    let after = |beginning: &&str| name.strip_prefix(beginning.as_bytes());
    TABLE.find(name).is_some() || IMPERSONAL_ACCOUNTS.iter().filter_map(after).any(is_account)
}

fn is_account(rest: &[u8]) -> bool {
    let in_account = |b: &u8| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_');
    !rest.is_empty() && rest.iter().all(in_account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::is_token;

    #[test]
    fn listed_names_are_tokens() {
        for name in IMPERSONAL_COOKIES.iter().chain(IMPERSONAL_ACCOUNTS) {
            assert!(is_token(name.as_bytes()), "{name}");
        }
        for byte in 0..=u8::MAX {
            assert!(!is_account(&[byte]) || is_token(&[byte]), "{byte:#x}");
        }
    }

    #[test]
    fn the_exact_names_are_sorted() {
        assert!(IMPERSONAL_COOKIES.is_sorted_by_key(|name| (name.len(), *name)));
    }

    #[test]
    fn analytics_and_consent_cookies_are_recognized() {
        for name in [
            "_ga",
            "_ga_X1Y2Z3W4V5",
            "_ga_1234567890",
            "_gid",
            "_gat",
            "_gat_UA-12345-6",
            "_gat_gtag_UA_12345_6",
            "_gac_UA-12345-6",
            "_dc_gtm_UA-12345-6",
            "_gcl_au",
            "_hjSession_123456",
            "_hjSessionUser_123456",
            "_pk_id.1.1fff",
            "_hp2_id.123",
            "AMCV_0123ABC%40AdobeOrg",
            "euconsent-v2",
            "__utmz",
        ] {
            assert!(is_impersonal(name.as_bytes()), "{name}");
        }
        for name in IMPERSONAL_COOKIES {
            assert!(is_impersonal(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn no_name_that_a_framework_makes_up_is_taken_for_one() {
        // Any name of an application, also one derived from a listed name.
        let products = IMPERSONAL_COOKIES
            .iter()
            .chain(IMPERSONAL_ACCOUNTS)
            .chain(IMPERSONAL_BEGINNINGS)
            .map(|name| name.trim_matches(['_', '.']).to_ascii_lowercase());
        let others = ["gallery", "gateway", "hjort", "pk", "ym_shop", "cb", "scid"];
        let applications = products.chain(others.map(str::to_owned));
        for application in applications {
            for name in [
                format!("_{application}_session"),
                format!("_{application}_key"),
                format!("_{application}_web_user_remember_me"),
                format!("{application}_session"),
                format!("{application}-session"),
                format!("{application}_sid"),
                format!("{application}_token"),
                format!("{application}id"),
                format!("_{application}id"),
            ] {
                let is_product = IMPERSONAL_COOKIES.contains(&name.as_str());
                assert_eq!(is_impersonal(name.as_bytes()), is_product, "{name}");
            }
        }
        for name in [
            "_ga_session",
            "_ga_",
            "_gallery_session",
            "_gateway_key",
            "_gat_",
            "_hjort_session",
            "_hj",
            "_pk_session",
            "_pk_id",
            "__utmanage",
            "__utm",
            "_ym_session",
            "_cb",
            "_scid",
            "ajs_user_id",
            "ajs_group_id",
            "amplitude_id_session",
            "euconsentry_session",
            "cmplz_session",
            "axeptio_session",
            "NRBA_SESSION",
            "_GA",
            "_gid2",
            "",
        ] {
            assert!(!is_impersonal(name.as_bytes()), "{name}");
        }
    }
}
