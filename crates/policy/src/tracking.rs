//! The query parameters that advertising and analytics add to links, for `key.query.ignore = "tracking"`.
//!
//! A name is listed only if it belongs to one product whose scripts read it in the browser, and if no application would
//! choose it for itself: `ref`, `source` and `cid` are not listed, nor are parameters of affiliates, which shops read on
//! the server.

/// Names; a `*` at the end matches any suffix.
pub const TRACKING_PARAMETERS: &[&str] = &[
    // Google Analytics and Ads.
    "utm_*",
    "gclid",
    "gclsrc",
    "dclid",
    "gbraid",
    "wbraid",
    "gad_source",
    "gad_campaignid",
    "srsltid",
    "_ga",
    "_gl",
    // Facebook, Instagram.
    "fbclid",
    "igsh",
    "igshid",
    // Microsoft, X, TikTok, LinkedIn, Pinterest, Snapchat, Reddit.
    "msclkid",
    "twclid",
    "ttclid",
    "li_fat_id",
    "epik",
    "ScCid",
    "rdt_cid",
    // Yandex.
    "yclid",
    "ysclid",
    "_openstat",
    // Mailchimp, HubSpot, Marketo, Klaviyo, Vero, Omeda.
    "mc_cid",
    "mc_eid",
    "_hsenc",
    "_hsmi",
    "__hsfp",
    "__hssc",
    "__hstc",
    "hsCtaTracking",
    "mkt_tok",
    "_kx",
    "vero_id",
    "vero_conv",
    "oly_anon_id",
    "oly_enc_id",
    // Matomo.
    "mtm_*",
    "pk_campaign",
    "pk_content",
    "pk_keyword",
    "pk_kwd",
    "pk_medium",
    "pk_source",
    // Adobe.
    "ef_id",
    "s_kwcid",
];
