//! Counts what a message lists before anything is made of it. An empty report is
//! two bytes on the wire and a hundred times that in memory, so a list above its
//! limit is refused from the bytes. What the elements say is not looked at here.

use super::proto;
use crate::api::problem::{Answer, Problem, ProblemCode};
use bytes::{Buf, Bytes};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use std::collections::HashMap;
use std::fmt::Display;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};
use windlass::remote::{HELD_MAX, KINDS_MAX, QUEUES_MAX, REPORTS_MAX};

/// A field of a message that may stand there more than once.
pub(crate) enum Field {
    List(u32, &'static str, usize),
    /// A message with lists of its own.
    Inner(u32, &'static [Field]),
}

/// What is counted in a message.
pub(crate) trait Counted {
    const FIELDS: &'static [Field] = &[];
}

impl Counted for proto::LeaseRequest {
    const FIELDS: &'static [Field] =
        &[Field::List(10, "/kinds", KINDS_MAX), Field::List(11, "/queues", QUEUES_MAX)];
}

impl Counted for proto::ReportRequest {
    const FIELDS: &'static [Field] =
        &[Field::List(10, "/held", HELD_MAX), Field::List(11, "/reports", REPORTS_MAX)];
}

impl Counted for proto::SessionRequest {
    const FIELDS: &'static [Field] = &[
        Field::Inner(
            1,
            &[
                Field::List(10, "/hello/kinds", KINDS_MAX),
                Field::List(11, "/hello/queues", QUEUES_MAX),
                Field::List(13, "/hello/held", HELD_MAX),
            ],
        ),
        Field::Inner(
            2,
            &[Field::List(10, "/say/held", HELD_MAX), Field::List(11, "/say/reports", REPORTS_MAX)],
        ),
    ];
}

// What comes from a server is for its clients to trust.
impl Counted for proto::LeaseResponse {}
impl Counted for proto::ReportResponse {}
impl Counted for proto::SessionResponse {}

/// The usual codec with the counting before it.
pub(crate) struct CountingCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CountingCodec<T, U> {
    fn default() -> Self {
        CountingCodec(PhantomData)
    }
}

impl<T, U> Codec for CountingCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Counted + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CountingDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CountingDecoder(PhantomData)
    }
}

pub(crate) struct CountingDecoder<U>(PhantomData<U>);

impl<U: Message + Default + Counted> Decoder for CountingDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        check::<U>(&bytes)?;
        Ok(Some(U::decode(bytes).map_err(broken)?))
    }
}

fn broken(error: impl Display) -> Problem {
    Problem::new(ProblemCode::InvalidFields, format!("the message cannot be read: {error}"))
}

fn check<U: Counted>(message: &Bytes) -> Answer<()> {
    Seen::default().look(message.clone(), U::FIELDS)
}

/// How often each list went on, in all parts of a message: one that stands there
/// twice is put together by whoever reads it.
#[derive(Default)]
struct Seen(HashMap<&'static str, usize>);

impl Seen {
    fn look(&mut self, mut left: Bytes, fields: &[Field]) -> Answer<()> {
        while left.has_remaining() {
            let (number, wire) = decode_key(&mut left).map_err(broken)?;
            let known = fields.iter().find(|field| match field {
                Field::List(at, ..) | Field::Inner(at, _) => *at == number,
            });
            match known {
                Some(Field::Inner(_, inner)) if wire == WireType::LengthDelimited => {
                    let length = decode_varint(&mut left).map_err(broken)?;
                    let length = usize::try_from(length).ok().filter(|n| *n <= left.len());
                    let length = length.ok_or_else(|| broken("it breaks off"))?;
                    self.look(left.split_to(length), inner)?;
                    continue;
                }
                Some(Field::List(_, pointer, most)) => self.one_more(pointer, *most)?,
                _ => {}
            }
            skip_field(wire, number, &mut left, DecodeContext::default()).map_err(broken)?;
        }
        Ok(())
    }

    fn one_more(&mut self, pointer: &'static str, most: usize) -> Answer<()> {
        let count = self.0.entry(pointer).or_default();
        *count += 1;
        match *count > most {
            true => Err(Problem::field(pointer, format!("more than {most} in one message"))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::session_request::Said;

    #[test]
    fn lists_are_counted_up_to_their_limit() {
        let reports = |n| proto::ReportRequest {
            reports: vec![proto::Report::default(); n],
            held: vec![proto::Held::default(); HELD_MAX],
            ..Default::default()
        };
        let check_bytes = |n| check::<proto::ReportRequest>(&reports(n).encode_to_vec().into());
        check_bytes(REPORTS_MAX).unwrap();
        let refused = Status::from(check_bytes(REPORTS_MAX + 1).unwrap_err());
        assert!(refused.message().starts_with("/reports: more than 1000"), "{refused}");
        let kinds = vec![String::new(); KINDS_MAX + 1];
        let wish = proto::LeaseRequest { kinds, ..Default::default() };
        check::<proto::LeaseRequest>(&wish.encode_to_vec().into()).unwrap_err();
    }

    #[test]
    fn the_parts_of_a_session_are_counted_together() {
        let reports = vec![proto::Report::default(); REPORTS_MAX];
        let say = proto::Say { reports, ..Default::default() };
        let one = proto::SessionRequest { said: Some(Said::Say(say)) }.encode_to_vec();
        check::<proto::SessionRequest>(&one.clone().into()).unwrap();
        let twice = [one.clone(), one].concat();
        let read = proto::SessionRequest::decode(twice.as_slice()).unwrap();
        assert!(matches!(read.said, Some(Said::Say(say)) if say.reports.len() > REPORTS_MAX));
        check::<proto::SessionRequest>(&twice.into()).unwrap_err();
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let say = proto::Say { held: vec![proto::Held::default(); 3], ..Default::default() };
        let whole = proto::SessionRequest { said: Some(Said::Say(say)) }.encode_to_vec();
        for length in 1..whole.len() {
            let part = Bytes::from(whole[..length].to_vec());
            check::<proto::SessionRequest>(&part).unwrap_err();
        }
    }
}
