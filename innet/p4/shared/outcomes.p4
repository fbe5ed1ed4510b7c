// What the controls find out about a packet, and decide: the words in which they tell each other.
//
// Numbers from 4 to 7 that are missing here belong to the targets that need more.

#ifndef INNET_OUTCOMES_P4
#define INNET_OUTCOMES_P4

// What an innet packet is, if version, kind, operation and lengths go together.
const bit<4> FORM_NONE         = 0;
const bit<4> FORM_CONTRIBUTION = 1;
const bit<4> FORM_HELLO        = 2;
const bit<4> FORM_CLEAR        = 3;   // only the controller's are heard
const bit<4> FORM_RESULT       = 8;   // these, and FORM_WITHHELD, only from a parent
const bit<4> FORM_PENDING      = 9;
const bit<4> FORM_STALE        = 10;
const bit<4> FORM_WITHHELD     = 11;  // a result without the lanes that were contributed
const bit<4> FORM_QUERY        = 7;

// The bit that a parent's answers have in common.
#define IS_ANSWER(form) form[3:3] == 1

// How the packet's sequence number compares with the one that its cell holds, one-hot.
const bit<4> AGE_NONE    = 0;  // was not compared
const bit<4> AGE_STALE   = 1;
const bit<4> AGE_NEWER   = 2;
const bit<4> AGE_CURRENT = 4;

// What happens between the packet's lanes and the cell's.
const bit<4> FOLD_NONE    = 0;
const bit<4> FOLD_START   = 1;  // the cell takes the packet's lanes
const bit<4> FOLD_COMBINE = 2;  // both become their sum, or their maximum
const bit<4> FOLD_READ    = 3;  // the packet takes the cell's lanes

// What becomes of a contribution, or of a parent's answer.
const bit<4> OUTCOME_NONE      = 0;
const bit<4> OUTCOME_WAITING   = 1;
const bit<4> OUTCOME_COMPLETED = 2;  // the result, to all who contribute to the job here
const bit<4> OUTCOME_ANSWERED  = 3;  // the result, to this worker
const bit<4> OUTCOME_PENDING   = 4;  // who has arrived so far, to this worker
const bit<4> OUTCOME_STALE     = 5;  // that the slot has gone on, to this worker
const bit<4> OUTCOME_RAISED    = 8;  // the sum of those below this switch, to the parent
const bit<4> OUTCOME_IGNORED   = 9;  // a parent's answer that nobody waits for, a query too early
const bit<4> OUTCOME_ASKED     = 10; // a query that goes on to the parent

#endif
