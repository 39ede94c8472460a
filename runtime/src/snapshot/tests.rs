//! Trees through files: whole, cut off, changed, and those that no tree can be grown from.

use std::io::{self, Cursor, Write};

use bantam_backend::StateGroup;
use bantam_graph::StateKind;
use proptest::prelude::*;

use super::{
    SnapshotError, SnapshotKey,
    format::{Reader, Writer},
};
use crate::cache::{NodeImage, PageImage, StateCache, StateShape, TreeImage};

const KEY: SnapshotKey = SnapshotKey([7; 32]);

/// Any numbers, whether they make a tree or not.
fn any_image() -> impl Strategy<Value = (TreeImage, Vec<Vec<u8>>)> {
    let node = (
        (prop::option::of(0..5_usize), 0..2_u64, prop::collection::vec(0..3_u32, 0..6), any::<bool>(), 0..9_u64),
        prop::collection::vec(prop::collection::vec(prop::option::of(0..4_usize), 0..4), 0..3),
        prop::option::of((0..3_usize, 0..9_u64)),
    );
    let node = node.prop_map(|((parent, namespace, tokens, resume, last_used), pages, value)| NodeImage {
        parent,
        namespace,
        tokens,
        resume,
        last_used,
        pages,
        value,
    });
    let blobs = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..6);
    (prop::collection::vec(node, 0..6), blobs, prop::collection::vec((0..3_usize, 0..9_usize), 0..5), 0..3_usize)
        .prop_map(|(nodes, blobs, pages, slots)| {
            let source = |i: usize| i % blobs.len();
            let pages: Vec<PageImage> = pages
                .into_iter()
                .enumerate()
                .map(|(i, (group, tokens))| PageImage { group, tokens, source: source(i) })
                .collect();
            let slots = (0..slots).map(|i| source(pages.len() + i)).collect();
            (TreeImage { nodes, pages, slots }, blobs)
        })
}

fn written<W: Write>(out: W, image: &TreeImage, blobs: &[Vec<u8>]) -> io::Result<W> {
    let mut writer = Writer::new(KEY, out)?;
    blobs.iter().try_for_each(|blob| writer.blob(blob))?;
    writer.finish(image)
}

fn read(bytes: &[u8]) -> Result<(TreeImage, Vec<Vec<u8>>), SnapshotError> {
    let (reader, image) = Reader::open(KEY, Cursor::new(bytes))?;
    let mut blobs = Vec::new();
    reader.blobs(|source, bytes| {
        assert_eq!(source, blobs.len());
        blobs.push(bytes.to_vec());
        Ok(())
    })?;
    Ok((image, blobs))
}

/// A disk with room for so many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.min(bytes.len()) {
            0 if !bytes.is_empty() => Err(io::Error::new(io::ErrorKind::StorageFull, "full")),
            taken => {
                self.0 -= taken;
                Ok(taken)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn groups() -> Vec<StateGroup> {
    let group = |kind, page_tokens| StateGroup { kind, page_tokens, page_bytes: 8, states: vec![0] };
    vec![group(StateKind::PerToken, 2), group(StateKind::Window { len: 3 }, 2)]
}

proptest! {
    #[test]
    fn what_is_written_is_read((image, blobs) in any_image()) {
        let bytes = written(Vec::new(), &image, &blobs).unwrap();
        prop_assert_eq!(read(&bytes).unwrap(), (image, blobs));
    }

    #[test]
    fn each_beginning_and_each_changed_bit_is_refused((image, blobs) in any_image(), bit in 0..8_u32) {
        let whole = written(Vec::new(), &image, &blobs).unwrap();
        for at in 0..whole.len() {
            prop_assert!(read(&whole[..at]).is_err(), "cut off at {} of {}", at, whole.len());
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            prop_assert!(read(&changed).is_err(), "bit {} of byte {} of {}", bit, at, whole.len());
        }
        prop_assert!(read(&[whole.as_slice(), &[0]].concat()).is_err());
        prop_assert!(read(&[whole.as_slice(), &whole].concat()).is_err());
    }

    #[test]
    fn a_disk_that_gets_full_anywhere_is_told((image, blobs) in any_image()) {
        let len = written(Vec::new(), &image, &blobs).unwrap().len();
        for room in 0..len {
            let error = written(Full(room), &image, &blobs).map(drop).unwrap_err();
            prop_assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        prop_assert!(written(Full(len), &image, &blobs).is_ok());
    }

    /// A file may have right sums and a tree in it that cannot be.
    #[test]
    fn no_tree_makes_the_cache_panic((image, _) in any_image(), recurrent in any::<bool>()) {
        let mut cache = StateCache::new(&groups(), 1 << 20, &[0, 0]).unwrap();
        if recurrent {
            let group = bantam_backend::RecurrentGroup { slot_bytes: 4, states: vec![0] };
            cache = cache.with_recurrent(&group, 1 << 10).unwrap();
        }
        let sound = image.check(StateShape { groups: &groups(), recurrent }).is_ok();
        prop_assert_eq!(cache.graft(image).is_ok(), sound);
        if sound {
            let found = cache.acquire(0, &[0, 1, 2], 3);
            prop_assert!(found.lease.len() <= 3);
            cache.clear();
        }
    }
}

fn node(parent: Option<usize>, tokens: &[u32], pages: [&[Option<usize>]; 2]) -> NodeImage {
    NodeImage { parent, tokens: tokens.to_vec(), pages: pages.map(<[_]>::to_vec).to_vec(), ..NodeImage::default() }
}

/// A node of three tokens with one of two behind it, in the second page of the first.
fn tree() -> TreeImage {
    let page = |group, tokens, source| PageImage { group, tokens, source };
    TreeImage {
        nodes: vec![
            node(None, &[5, 6, 7], [&[Some(0), Some(1)], &[None, None]]),
            node(Some(0), &[8, 9], [&[Some(1), Some(2)], &[Some(3), Some(4)]]),
        ],
        pages: vec![page(0, 2, 0), page(0, 2, 1), page(0, 1, 2), page(1, 2, 3), page(1, 1, 4)],
        slots: Vec::new(),
    }
}

type Change = &'static dyn Fn(&mut TreeImage);

#[test]
fn each_way_of_being_no_tree_is_named() {
    let groups = groups();
    let check = |change: &dyn Fn(&mut TreeImage)| {
        let mut tree = tree();
        change(&mut tree);
        tree.check(StateShape { groups: &groups, recurrent: false }).map_err(|e| e.to_string())
    };
    assert_eq!(check(&|_| ()), Ok(()));
    let faults: [(&str, Change); 13] = [
        ("before its parent", &|tree| tree.nodes[0].parent = Some(1)),
        ("no tokens", &|tree| tree.nodes[1].tokens.clear()),
        ("begin alike", &|tree| tree.nodes[1].parent = None),
        ("at no time", &|tree| tree.nodes[1].last_used = u64::MAX),
        ("other groups", &|tree| tree.nodes[1].pages.truncate(1)),
        ("more or fewer pages", &|tree| tree.nodes[1].pages[0].truncate(1)),
        ("page that there is not", &|tree| tree.nodes[1].pages[0][0] = Some(9)),
        ("without its rows", &|tree| tree.pages[1].tokens = 1),
        ("in two places", &|tree| tree.nodes[1].pages[0][1] = Some(1)),
        ("same bytes", &|tree| tree.pages[1].source = 0),
        ("too many", &|tree| tree.pages[1].tokens = 3),
        ("group that there is not", &|tree| tree.pages[1].group = 2),
        ("has none", &|tree| {
            tree.slots.push(5);
            tree.nodes[1].value = Some((0, 0));
        }),
    ];
    for (fault, change) in faults {
        // Only the tokens decide what two nodes begin with.
        let found = check(&|tree| {
            change(tree);
            if fault == "begin alike" {
                tree.nodes[1].tokens[0] = 5;
            }
        });
        assert!(found.as_ref().is_err_and(|why| why.contains(fault)), "{fault}: {found:?}");
    }
}
