//! Status codes, with the reason phrases of RFC 9110 section 15.

/// A status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status(pub u16);

macro_rules! statuses {
    ($($name:ident = $code:literal, $reason:literal;)*) => {
        impl Status {
            $(#[doc = concat!("`", $code, " ", $reason, "`")]
            pub const $name: Self = Self($code);)*

            /// The reason phrase; empty for a code that is not known here.
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }
        }
    };
}

statuses! {
    CONTINUE = 100, "Continue";
    OK = 200, "OK";
    CREATED = 201, "Created";
    NO_CONTENT = 204, "No Content";
    PARTIAL_CONTENT = 206, "Partial Content";
    MULTI_STATUS = 207, "Multi-Status";
    MOVED_PERMANENTLY = 301, "Moved Permanently";
    FOUND = 302, "Found";
    NOT_MODIFIED = 304, "Not Modified";
    TEMPORARY_REDIRECT = 307, "Temporary Redirect";
    PERMANENT_REDIRECT = 308, "Permanent Redirect";
    BAD_REQUEST = 400, "Bad Request";
    UNAUTHORIZED = 401, "Unauthorized";
    FORBIDDEN = 403, "Forbidden";
    NOT_FOUND = 404, "Not Found";
    METHOD_NOT_ALLOWED = 405, "Method Not Allowed";
    REQUEST_TIMEOUT = 408, "Request Timeout";
    CONFLICT = 409, "Conflict";
    GONE = 410, "Gone";
    LENGTH_REQUIRED = 411, "Length Required";
    PRECONDITION_FAILED = 412, "Precondition Failed";
    CONTENT_TOO_LARGE = 413, "Content Too Large";
    URI_TOO_LONG = 414, "URI Too Long";
    UNSUPPORTED_MEDIA_TYPE = 415, "Unsupported Media Type";
    RANGE_NOT_SATISFIABLE = 416, "Range Not Satisfiable";
    EXPECTATION_FAILED = 417, "Expectation Failed";
    LOCKED = 423, "Locked";
    FAILED_DEPENDENCY = 424, "Failed Dependency";
    TOO_MANY_REQUESTS = 429, "Too Many Requests";
    HEAD_TOO_LARGE = 431, "Request Header Fields Too Large";
    CHECKSUM_MISMATCH = 460, "Checksum Mismatch";
    INTERNAL_SERVER_ERROR = 500, "Internal Server Error";
    NOT_IMPLEMENTED = 501, "Not Implemented";
    BAD_GATEWAY = 502, "Bad Gateway";
    SERVICE_UNAVAILABLE = 503, "Service Unavailable";
    GATEWAY_TIMEOUT = 504, "Gateway Timeout";
    VERSION_NOT_SUPPORTED = 505, "HTTP Version Not Supported";
    INSUFFICIENT_STORAGE = 507, "Insufficient Storage";
}

impl Status {
    /// Returns whether an answer with this status never has a body (RFC 9110 section 6.4.1).
    pub fn is_bodiless(self) -> bool {
        self.0 < 200 || self == Self::NO_CONTENT || self == Self::NOT_MODIFIED
    }
}
