"""Why: the causal story of a replica, a rank or a moment, told from a journal alone.

facts      one thing that happened or was decided, with what caused it
memory     what the telling of later facts needs to know of earlier ones
causes     the world's side: what events say
decisions  the core's side: what each kind of note says, and what it follows from
weights    the same for what a cluster decides beside ranks: targets, workers, memory, what callers are told
pictures   how a deployment, its weights or all memory stood at a moment
tracing    a journal, line by line, into facts
stories    the facts that answer a question, in the order of time
wording    rules, ranks and moments in words
"""
