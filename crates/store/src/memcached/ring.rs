//! Server selection by libmemcached's weighted ketama, compatible with clients in other languages.

use super::settings::{DEFAULT_PORT, ServerAddress};

/// Number of points per digest.
const POINTS_PER_DIGEST: usize = 4;
/// Digests per server for equal weights, that is, 160 points.
const DIGESTS_PER_SERVER: f32 = 40.0;

/// Ketama ring.
#[derive(Debug)]
pub(super) struct KetamaRing {
    /// Points with their servers, in order.
    points: Vec<(u32, usize)>,
}

impl KetamaRing {
    /// Creates a ring of these servers.
    pub(super) fn new(servers: &[ServerAddress]) -> Self {
        let total: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
        let mut points = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            for digest in 0..digests(server.weight, total, servers.len()) {
                let name = point_name(server, digest);
                let digest = md5::compute(name).0;
                let four = digest.chunks_exact(4).take(POINTS_PER_DIGEST);
                points.extend(four.map(|bytes| (little_endian(bytes), index)));
            }
        }
        points.sort_unstable();
        Self { points }
    }

    /// Returns the server of a key among those accepted by `is_wanted`: the one with the first point at or
    /// after the hash of the key, clockwise.
    pub(super) fn find(&self, key: &[u8], accepts: impl Fn(usize) -> bool) -> Option<usize> {
        let hash = little_endian(&md5::compute(key).0[..4]);
        let first = self.points.partition_point(|&(point, _)| point < hash);
        let (before, after) = self.points.split_at(first);
        let mut clockwise = after.iter().chain(before).map(|&(_, server)| server);
        clockwise.find(|&server| accepts(server))
    }
}

/// Number of digests of a server, in the single-precision arithmetic of libmemcached, which determines the
/// number of points for some weights.
#[expect(clippy::cast_sign_loss, reason = "nothing here is negative")]
fn digests(weight: u32, total: u64, servers: usize) -> u32 {
    let part = weight as f32 / total as f32;
    let digests = part * DIGESTS_PER_SERVER * servers as f32;
    (f64::from(digests) + 1e-10) as f32 as u32
}

fn point_name(server: &ServerAddress, number: u32) -> String {
    if server.port == DEFAULT_PORT {
        format!("{}-{number}", server.host)
    } else {
        format!("{}:{}-{number}", server.host, server.port)
    }
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(list: &str) -> Vec<ServerAddress> {
        list.split(',').map(|one| one.parse().unwrap()).collect()
    }

    /// Test vectors of libmemcached (`ketama_test_cases`) with eight servers: key, hash, and last octet of
    /// the server's address.
    #[test]
    fn the_published_vectors() {
        let servers = servers(
            "10.0.1.1:11211:600,10.0.1.2:11211:300,10.0.1.3:11211:200,10.0.1.4:11211:350,\
             10.0.1.5:11211:1000,10.0.1.6:11211:800,10.0.1.7:11211:950,10.0.1.8:11211:100",
        );
        let ring = KetamaRing::new(&servers);
        for (key, hash, point, last) in [
            (r"SVa_]_V41)", 443_691_461, 445_379_617, 7),
            (r"*/Z;?V(.\8", 1_422_915_503, 1_428_303_028, 1),
            (r"30C1*Z*S/_", 1_473_165_754, 1_480_075_959, 2),
            (r"D[HE+cFXDK", 2_117_036_136, 2_117_124_014, 3),
            (r"EM75N0+[X1", 1_558_531_507, 1_559_308_507, 4),
            (r"`C9^FV,960", 2_628_553_463, 2_628_733_766, 6),
            (r"1I=cTMNTKF", 2_882_686_667, 2_885_206_587, 5),
            (r"726bW=9*a4", 4_213_440_020, 4_213_950_705, 7),
            (r"\`)<B)UE,c", 951_096_736, 955_226_069, 1),
            (r"P1[Ma3=K1/", 1_989_324_036, 1_994_028_240, 8),
            (r"N-)88>[O`,", 50_404_102, 51_792_557, 5),
            (r"8*6a;Sc*X+", 4_223_431_086, 4_230_156_966, 2),
            (r"VD6D0]ba_\", 3_842_502_950, 3_842_588_691, 1),
        ] {
            assert_eq!(little_endian(&md5::compute(key).0[..4]), hash, "{key}");
            let next = ring.points.iter().find(|(at, _)| *at >= hash);
            assert_eq!(next.map(|(at, _)| *at), Some(point), "{key}");
            let server = ring.find(key.as_bytes(), |_| true).unwrap();
            assert_eq!(servers[server].host, format!("10.0.1.{last}"), "{key}");
        }
    }

    /// The hash of this key exceeds the last point.
    #[test]
    fn the_ring_closes() {
        let servers = servers(
            "10.0.1.1:11211:600,10.0.1.2:11211:300,10.0.1.3:11211:200,10.0.1.4:11211:350,\
             10.0.1.5:11211:1000,10.0.1.6:11211:800,10.0.1.7:11211:950,10.0.1.8:11211:100",
        );
        let ring = KetamaRing::new(&servers);
        assert_eq!(little_endian(&md5::compute("VDEAAAAA").0[..4]), 0xfffc_d1b5);
        assert!(ring.points.iter().all(|&(point, _)| point < 0xfffc_d1b5));
        let server = ring.find(b"VDEAAAAA", |_| true);
        assert_eq!(server, Some(ring.points[0].1));
    }

    /// The sum of 25 equal fractions is slightly below one in single precision; verified against a client
    /// based on libmemcached.
    #[test]
    fn equal_weights_are_160_points_each_up_to_rounding() {
        for (count, points) in [(1, 160), (2, 160), (3, 160), (8, 160), (24, 160), (25, 156)] {
            let list: Vec<String> = (0..count).map(|n| format!("cache{n}:100:7")).collect();
            let ring = KetamaRing::new(&servers(&list.join(",")));
            assert_eq!(ring.points.len(), points * count, "{count} servers");
        }
    }

    #[test]
    fn only_the_keys_of_a_lost_server_move() {
        let ring = KetamaRing::new(&servers("a:1,b:1,c:1,d:1"));
        let mut moved = 0;
        for number in 0..4000 {
            let key = format!("key{number}");
            let whole = ring.find(key.as_bytes(), |_| true).unwrap();
            let without = ring.find(key.as_bytes(), |server| server != 2).unwrap();
            assert_ne!(without, 2);
            assert!(whole == 2 || without == whole);
            moved += usize::from(whole == 2);
        }
        assert!((600..1400).contains(&moved), "{moved} of 4000");
        assert_eq!(ring.find(b"key", |_| false), None);
    }
}
