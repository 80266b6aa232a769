; The pads: two, or four on a Four Score.

.segment "CODE"

; Takes eight bits from each port into `first` and `second`.
.macro read_ports first, second
    .local next
    ldx #8
next:
    lda PAD_PORT1
    lsr
    rol first
    lda PAD_PORT2
    lsr
    rol second
    dex
    bne next
.endmacro

; Reads all pads. After the eight buttons of pads 1 and 2 a Four Score sends those of pads 3 and 4, and then a signature
; by which it is known; a bare port sends ones.
.proc read_pads
    ldx #3
:   lda pads, x
    sta pads_old, x
    dex
    bpl :-
    lda #1
    sta PAD_PORT1
    lda #0
    sta PAD_PORT1
    read_ports pads+0, pads+1
    read_ports pads+2, pads+3
    read_ports signature+0, signature+1
    ldy #0
    lda signature+0
    cmp #%00010000
    bne @two
    lda signature+1
    cmp #%00100000
    bne @two
    iny
    bne @known
@two:
    sty pads+2
    sty pads+3
@known:
    sty four
    ldx #3
    lda #0
    sta any
@edges:
    lda pads_old, x
    eor #$FF
    and pads, x
    sta pressed, x
    ora any
    sta any
    dex
    bpl @edges
    rts
.endproc
