; Numbers: chance, products and quotients.

.segment "CODE"

; The next random byte, in A: eight steps of a shift register with 2^16 - 1 states. Keeps X.
.proc random
    ldy #8
    lda seed
@step:
    asl
    rol seed+1
    bcc :+
    eor #$39
:   dey
    bne @step
    sta seed
    rts
.endproc

; Lets the moments at which people press buttons decide what chance will bring. That is all that ever does.
.proc stir
    lda any
    beq :+
    eor frame
    eor seed
    bne @store              ; the register must not become all 0
    lda #$A5
@store:
    sta seed
:   jmp random
.endproc

; A times the byte in num: the high byte of the product is in A, the low byte in num. Keeps X.
.proc multiply
    sta den
    lda #0
    ldy #8
    lsr num
@bit:
    bcc :+
    clc
    adc den
:   ror
    ror num
    dey
    bne @bit
    rts
.endproc

; num (16 bits) divided by den (less than 128): the quotient is in num. Keeps X.
.proc divide
    lda #0
    ldy #16
@bit:
    asl num
    rol num+1
    rol
    cmp den
    bcc :+
    sbc den
    inc num
:   dey
    bne @bit
    rts
.endproc

; num = -num
.proc negate
    sec
    lda #0
    sbc num
    sta num
    lda #0
    sbc num+1
    sta num+1
    rts
.endproc
