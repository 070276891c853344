//! Parents that wait: children are written with their step, counted from their
//! own rows, and the last one wakes or ends the parent by its policy. What
//! happens to children when their parent ends first is in `children_end.rs`.

use crate::harness::make::{done, fails, lease, step, waits};
use crate::harness::{Node, Shape, World};
use windlass_core::children::{Policy, Then, Totals};
use windlass_core::control::TaskChange;
use windlass_core::id::TaskId;
use windlass_core::outcome::{Outcome, Reason};
use windlass_core::state::State;
use windlass_core::store::Write;

/// A parent that waits for `n` children.
pub(super) async fn family(
    w: &World,
    node: &Node,
    policy: Policy,
    then: Then,
    n: usize,
) -> (TaskId, Vec<TaskId>) {
    let parent = w.submit(w.task().kind("parent").policy(policy)).await;
    let claimed = w.claim_id(node, parent).await;
    let children: Vec<_> =
        (0..n).map(|i| w.task().kind("child").under(parent, &format!("1:split:{i}"))).collect();
    let ids = children.iter().map(|c| c.id).collect();
    let split =
        Write { steps: vec![step("split", 1)], children, ..w.settling(&claimed, waits(then)) };
    assert_eq!(w.write(split).await.state, State::Waiting);
    (parent, ids)
}

pub(super) async fn end(w: &World, node: &Node, child: TaskId, outcome: Outcome) {
    w.settle(&w.claim_id(node, child).await, outcome).await;
}

pub(super) fn totals(completed: u64, failed: u64, cancelled: u64, open: u64) -> Totals {
    Totals { total: completed + failed + cancelled + open, completed, failed, cancelled }
}

pub async fn children_are_written_with_their_step(w: World) {
    let node = w.node("a").await;
    let parent = w.running(&node).await;
    let id = parent.task.id;
    let child = w.task().kind("child").under(id, "1:split:0");
    let child_id = child.id;
    let write = Write {
        steps: vec![step("split", 1)],
        children: vec![child],
        ..Write::new(lease(&parent))
    };
    w.write(write).await;
    let task = w.get(child_id).await;
    assert_eq!((task.parent, task.state()), (Some(id), State::Queued));
    assert_eq!(w.story(child_id).await, ["task.submitted"]);
    assert_eq!(w.store().children(id).await.unwrap(), totals(0, 0, 0, 1));
    assert_eq!(w.claim_one(&node).await.task.id, child_id);
    w.sound().await;
}

pub async fn a_childs_key_counts_once_under_its_parent(w: World) {
    let node = w.node("a").await;
    let (one, two) = (w.running(&node).await, w.running(&node).await);
    let write = |parent: &windlass_core::store::Claimed, version| Write {
        steps: vec![step("split", version)],
        children: vec![
            w.task().under(parent.task.id, "1:split:0"),
            w.task().under(parent.task.id, "1:split:0"),
        ],
        ..Write::new(lease(parent))
    };
    w.write(write(&one, 1)).await;
    w.write(write(&one, 2)).await;
    w.write(write(&two, 1)).await;
    assert_eq!(w.store().children(one.task.id).await.unwrap().total, 1);
    assert_eq!(w.store().children(two.task.id).await.unwrap().total, 1);
    assert_eq!(w.list("").await.len(), 4);
    w.sound().await;
}

pub async fn a_child_with_a_taken_id_is_refused_alone(w: World) {
    let node = w.node("a").await;
    let claimed = [w.running(&node).await, w.running(&node).await, w.running(&node).await];
    let taken = w.submit(w.task().payload(r#"{"mine":1}"#)).await;
    let before = w.get(taken).await;
    let mut writes: Vec<Write> = claimed.iter().map(|c| w.settling(c, done())).collect();
    let mut child = w.task().under(claimed[1].task.id, "1:split:0");
    child.id = taken;
    writes[1].children = vec![child];
    let answers = w.record(writes).await;
    let good: Vec<bool> = answers.iter().map(|a| a.is_ok()).collect();
    assert_eq!(good, [true, false, true], "{answers:?}");
    assert_eq!(w.get(taken).await, before);
    assert_eq!(w.state(claimed[1].task.id).await, State::Running);
    w.sound().await;
}

pub async fn a_bad_child_is_refused_with_its_step(w: World) {
    let node = w.node("a").await;
    let parent = w.running(&node).await;
    let other = w.submit(w.task()).await;
    let before = w.snapshot().await;
    let bad =
        [w.task().under(parent.task.id, "1").priority(99), w.task().under(other, "1"), w.task()];
    for child in bad {
        let good = w.task().under(parent.task.id, "2");
        let write = Write {
            steps: vec![step("split", 1)],
            children: vec![good, child],
            ..Write::new(lease(&parent))
        };
        assert!(w.try_write(write).await.is_err());
    }
    w.unchanged_since(&before).await;
}

pub async fn the_last_child_resumes_its_parent(w: World) {
    let node = w.node("a").await;
    let (parent, children) = family(&w, &node, Policy::AllowErrors, Then::Resume, 3).await;
    for (i, child) in children.iter().enumerate() {
        w.judge_children().await;
        assert_eq!(w.state(parent).await, State::Waiting, "after {i} of 3");
        end(&w, &node, *child, done()).await;
    }
    let upkept = w.upkeep(windlass_core::store::Job::Children, 100).await;
    assert!(upkept.ready.iter().any(|q| q.as_str() == "default"), "{upkept:?}");
    let claimed = w.claim_one(&node).await;
    assert_eq!(claimed.task.id, parent);
    assert_eq!(claimed.checkpoint.as_ref().unwrap().finished().count(), 1);
    assert_eq!(w.store().children(parent).await.unwrap(), totals(3, 0, 0, 0));
    w.finish(&claimed).await;
    w.judge_children().await;
    assert_eq!(w.state(parent).await, State::Completed);
    w.sound().await;
}

pub async fn each_policy_gives_its_end(w: World) {
    use Policy::{All, AllowErrors, AtLeast, FailFast};
    use State::{Completed, CompletedWithErrors, Failed};
    let node = w.node("a").await;
    let table = [
        (All, [done(), done()], Completed),
        (All, [done(), fails()], Failed),
        (AllowErrors, [done(), done()], Completed),
        (AllowErrors, [fails(), Outcome::Cancelled], CompletedWithErrors),
        (FailFast, [done(), done()], Completed),
        (FailFast, [done(), fails()], Failed),
        (AtLeast(1), [done(), fails()], CompletedWithErrors),
        (AtLeast(2), [done(), fails()], Failed),
    ];
    for (policy, outcomes, expected) in table {
        let (parent, children) = family(&w, &node, policy, Then::End, 2).await;
        for (child, outcome) in children.into_iter().zip(outcomes) {
            end(&w, &node, child, outcome).await;
        }
        w.judge_children().await;
        let standing = w.get(parent).await.standing;
        assert_eq!((standing.state, standing.finished_at), (expected, Some(w.at())), "{policy:?}");
        assert_eq!(standing.children, Some(w.store().children(parent).await.unwrap()));
        let letter = w.dead_letter(parent).await.map(|d| d.reason);
        assert_eq!(letter, (expected == Failed).then_some(Reason::Children), "{policy:?}");
        let name = format!("task.{expected}");
        assert!(w.story(parent).await.contains(&name.as_str()));
    }
    w.sound().await;
}

pub async fn two_children_may_end_in_one_call(w: World) {
    let node = w.node("a").await;
    let (parent, children) = family(&w, &node, Policy::All, Then::End, 2).await;
    let claimed = w.ask(node.ids(&children)).await;
    let writes = claimed.iter().map(|c| w.settling(c, done())).collect();
    assert!(w.record(writes).await.iter().all(|a| a.is_ok()));
    w.judge_children().await;
    assert_eq!(w.state(parent).await, State::Completed);
    assert_eq!(w.story(parent).await.iter().filter(|n| **n == "task.completed").count(), 1);
}

pub async fn a_parent_that_waits_too_late_is_woken(w: World) {
    let node = w.node("a").await;
    let parent = w.running(&node).await;
    let child = w.submit(w.task().under(parent.task.id, "1")).await;
    end(&w, &node, child, done()).await;
    w.judge_children().await;
    assert_eq!(w.state(parent.task.id).await, State::Running);
    w.settle(&parent, waits(Then::Resume)).await;
    w.judge_children().await;
    assert_eq!(w.state(parent.task.id).await, State::Queued);
}

pub async fn a_parent_without_children_does_not_wait_forever(w: World) {
    let node = w.node("a").await;
    let (resumes, _) = family(&w, &node, Policy::All, Then::Resume, 0).await;
    let (ends, _) = family(&w, &node, Policy::All, Then::End, 0).await;
    w.judge_children().await;
    assert_eq!(w.states(&[resumes, ends]).await, [State::Queued, State::Completed]);
}

pub async fn waiting_for_a_signal_is_not_ended_by_children(w: World) {
    let node = w.node("a").await;
    let parent = w.running(&node).await;
    let child = w.submit(w.task().under(parent.task.id, "1")).await;
    let signal = windlass_core::outcome::WaitingOn::Signal { name: "go".to_owned() };
    w.settle(&parent, Outcome::Wait(signal)).await;
    end(&w, &node, child, done()).await;
    w.judge_children().await;
    assert_eq!(w.state(parent.task.id).await, State::Waiting);
}

pub async fn a_child_cancelled_by_a_person_counts(w: World) {
    let node = w.node("a").await;
    let (parent, children) = family(&w, &node, Policy::AllowErrors, Then::End, 2).await;
    w.cancel(children[0]).await;
    end(&w, &node, children[1], done()).await;
    w.judge_children().await;
    let standing = w.get(parent).await.standing;
    assert_eq!(standing.state, State::CompletedWithErrors);
    assert_eq!(standing.children, Some(totals(1, 0, 1, 0)));
}

pub async fn a_child_that_expires_counts(w: World) {
    let node = w.tireless("a").await;
    let parent = w.running(&node).await;
    let id = parent.task.id;
    let child = w.task().under(id, "1").deadline(std::time::Duration::from_secs(1));
    w.submit(child).await;
    w.settle(&parent, waits(Then::End)).await;
    w.advance(std::time::Duration::from_secs(5));
    w.exhaust(windlass_core::store::Job::Expire).await;
    w.judge_children().await;
    assert_eq!(w.get(id).await.standing.children, Some(totals(0, 1, 0, 0)));
    assert_eq!(w.state(id).await, State::CompletedWithErrors);
}

pub async fn a_held_parent_is_woken_when_it_is_resumed(w: World) {
    let node = w.node("a").await;
    let (parent, children) = family(&w, &node, Policy::All, Then::Resume, 1).await;
    w.change(parent, TaskChange::Pause).await;
    end(&w, &node, children[0], done()).await;
    w.judge_children().await;
    assert_eq!(w.state(parent).await, State::Paused);
    w.change(parent, TaskChange::Resume).await;
    w.judge_children().await;
    assert_eq!(w.state(parent).await, State::Queued);
    w.sound().await;
}

pub async fn families_reach_over_three_generations(w: World) {
    let node = w.node("a").await;
    let (top, middle) = family(&w, &node, Policy::All, Then::End, 1).await;
    let parent = w.claim_id(&node, middle[0]).await;
    let leaf = w.task().under(middle[0], "1:split:0");
    let leaf_id = leaf.id;
    let split = Write {
        steps: vec![step("split", 1)],
        children: vec![leaf],
        ..w.settling(&parent, waits(Then::End))
    };
    w.write(split).await;
    end(&w, &node, leaf_id, done()).await;
    w.judge_children().await;
    assert_eq!(w.states(&[middle[0], top]).await, [State::Completed, State::Completed]);
    assert_eq!(w.store().children(top).await.unwrap(), totals(1, 0, 0, 0));
}
